package llmapp

// AskUsage notes that a handler of the config asks for usage where streams would carry none.
// It must be called while the config is provisioned.
func (a *App) AskUsage() { a.asks.Store(true) }

// AsksUsage tells whether any handler of the config does. If none does, no call has to be
// made again because an upstream does not know how to be asked.
func (a *App) AsksUsage() bool { return a.asks.Load() }
