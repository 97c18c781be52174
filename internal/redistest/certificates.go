//go:build unix

package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// ServerName is the host name that the server's certificate is for, besides
// 127.0.0.1.
const ServerName = "redis.test"

// Certificates are PEM files of an authority of the test's own, and what it has
// signed for the server and for a client.
type Certificates struct {
	CA                string
	Server, ServerKey string
	Client, ClientKey string
}

// Config is a client's that trusts the authority, and that shows the client's
// certificate where it is asked for it.
func (c *Certificates) Config() *tls.Config {
	roots := x509.NewCertPool()
	if b, err := os.ReadFile(c.CA); err == nil {
		roots.AppendCertsFromPEM(b)
	}
	cfg := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if cert, err := tls.LoadX509KeyPair(c.Client, c.ClientKey); err == nil {
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg
}

func newCertificates(tb testing.TB, dir string) *Certificates {
	tb.Helper()
	now := time.Now()
	template := func(serial int64, name string) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
			NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		}
	}
	ca := template(1, "authority of a test")
	ca.IsCA, ca.KeyUsage = true, x509.KeyUsageCertSign
	caKey := newKey(tb)

	server := template(2, ServerName)
	server.DNSNames, server.IPAddresses = []string{ServerName}, []net.IP{net.IPv4(127, 0, 0, 1)}
	// A server of a cluster or a replica is a client of others.
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	client := template(3, "client of a test")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

	sign := func(c *x509.Certificate, key *ecdsa.PrivateKey, name string) (certFile, keyFile string) {
		der, err := x509.CreateCertificate(rand.Reader, c, ca, &key.PublicKey, caKey)
		must(tb, "signing a certificate", err)
		keyDER, err := x509.MarshalPKCS8PrivateKey(key)
		must(tb, "encoding a key", err)
		return writePEM(tb, dir, name+".crt", "CERTIFICATE", der), writePEM(tb, dir, name+".key", "PRIVATE KEY", keyDER)
	}
	c := new(Certificates)
	c.CA, _ = sign(ca, caKey, "ca")
	c.Server, c.ServerKey = sign(server, newKey(tb), "server")
	c.Client, c.ClientKey = sign(client, newKey(tb), "client")
	return c
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, "making a key", err)
	return key
}

func writePEM(tb testing.TB, dir, name, kind string, der []byte) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	must(tb, "writing a certificate", os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return path
}
