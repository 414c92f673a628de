package server

// Server listens.
type Server struct {
	port int
}

// Start begins to listen.
func (s *Server) Start() error {
	return nil
}

func (c *Client) Start() error {
	return errors.New(`{`)
}
