package outage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// replica is the content of the file that says who this is.
type replica struct {
	// Identity is the remote's word for it.
	Identity string `json:"identity"`
	// Host is where it was written: a directory that was copied to another machine must
	// not make one replica of two.
	Host string `json:"host"`
}

// readIdentity returns what the directory says, empty for nothing that is of use.
func readIdentity(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, identityName))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading the replica's identity: %w", err)
	}
	var r replica
	if err := json.Unmarshal(data, &r); err == nil && r.Host == host() {
		return r.Identity, nil
	}
	return "", nil
}

// keepIdentity writes what the remote is called by now.
func (j *journal) keepIdentity(identity string) error {
	if identity == j.token {
		return nil
	}
	data, err := json.Marshal(replica{Identity: identity, Host: host()})
	if err != nil {
		return fmt.Errorf("writing the replica's identity: %w", err)
	}
	path := filepath.Join(j.dir.Path(), identityName)
	temp := path + ".tmp"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return fmt.Errorf("writing the replica's identity: %w", err)
	}
	if err := os.Rename(temp, path); err != nil {
		return fmt.Errorf("writing the replica's identity: %w", err)
	}
	j.token = identity
	return nil
}

// host is the machine's name, empty where it has none.
func host() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}
