package llmapp

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
)

// config reads the files, and checks that they are of use. It returns the hash of the
// CA's file, too, empty if there is none.
func (t *RedisTLS) config() (c *tls.Config, ca string, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, "", fmt.Errorf("tls: reading ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, "", fmt.Errorf("tls: ca %q has no certificate in PEM form", t.CA)
		}
		sum := sha256.Sum256(pem)
		ca = hex.EncodeToString(sum[:])
	}
	if (t.Cert == "") != (t.Key == "") {
		return nil, "", errors.New("tls: cert and key go together")
	}
	if t.Cert == "" {
		return c, ca, nil
	}
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("tls: loading cert and key: %w", err)
		}
		return &cert, nil
	}
	if _, err := load(); err != nil {
		return nil, "", err
	}
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return c, ca, nil
}
