package redistest

// Outage is a way in which a Redis goes away and comes back.
type Outage struct {
	Name string
	// Cut begins the outage, and Heal ends it, of a server that clients reach by the proxy.
	Cut, Heal func(*Server, *Proxy)
	// Forgets is set where the server has lost all that it held.
	Forgets bool
}

// Outages are those in which nobody is answered.
func Outages() []Outage {
	return []Outage{
		{
			Name: "hung",
			Cut:  func(s *Server, _ *Proxy) { s.Stop() },
			Heal: func(s *Server, _ *Proxy) { s.Continue() },
		},
		{
			Name: "killed and back",
			Cut:  func(s *Server, _ *Proxy) { s.Kill() },
			Heal: func(s *Server, _ *Proxy) { s.Restart() },
		},
		{
			Name:    "killed and back empty",
			Cut:     func(s *Server, _ *Proxy) { s.Kill() },
			Heal:    func(s *Server, _ *Proxy) { s.RestartEmpty() },
			Forgets: true,
		},
		{
			Name: "partition",
			Cut:  func(_ *Server, p *Proxy) { p.Set(Faults{Partition: true}) },
			Heal: func(_ *Server, p *Proxy) { p.Set(Faults{}) },
		},
	}
}
