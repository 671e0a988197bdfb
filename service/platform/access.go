package platform

// access is what this replica remembers about credentials for a moment.
type access struct{}
