package harness

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/network"
	"github.com/orbit-run/orbit/schema"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

const (
	officialImage = "mysql:8.4"
	localImage    = "orbit-mysql:local" // what make mysql-image builds where the official one is out of reach
	rootPassword  = "orbit"
	mysqlPort     = "3306/tcp"
)

// Server is a MySQL server in a container of its own, for a test that kills it, makes it read-only or changes its
// settings. Every other test shares one server through [New].
type Server struct {
	// DSN is root's, without a database. It stays the same over Kill and Start.
	DSN       string
	container testcontainers.Container
}

// PrivateServer starts a server for t alone, in two to three seconds, and removes it when t ends. The flags are
// mysqld's, such as --innodb-lock-wait-timeout=1.
func PrivateServer(t testing.TB, flags ...string) *Server {
	t.Helper()
	quieten()
	port, err := freePort(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server, err := startServer(t.Context(), flags, publishAt(port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := testcontainers.TerminateContainer(server.container, testcontainers.StopTimeout(0)); err != nil {
			t.Errorf("remove the test's MySQL server: %v", err)
		}
	})
	return server
}

// Kill ends the server as kill -9 does. What was committed is there again after Start.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	now := time.Duration(0)
	if err := s.container.Stop(context.WithoutCancel(t.Context()), &now); err != nil {
		t.Fatalf("kill the test's MySQL server: %v", err)
	}
}

// Start starts a killed server and returns when it answers.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.container.Start(t.Context()); err != nil {
		t.Fatalf("start the test's MySQL server: %v", err)
	}
}

// CreateDatabase makes an empty database and returns its DSN.
func (s *Server) CreateDatabase(t testing.TB, name string) string {
	t.Helper()
	db, err := sql.Open("mysql", s.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := createDatabase(t.Context(), db, name); err != nil {
		t.Fatal(err)
	}
	return databaseDSN(s.DSN, name)
}

// Migrated makes a database at this program's schema version, for Options.Database.
func (s *Server) Migrated(t testing.TB, name string) *Database {
	t.Helper()
	dsn := s.CreateDatabase(t, name)
	if err := schema.Up(t.Context(), dsn, schema.UpOptions{}); err != nil {
		t.Fatal(err)
	}
	db, err := schema.Open(dsn, schema.PoolOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return &Database{Name: name, DSN: dsn, DB: db}
}

func startServer(ctx context.Context, flags []string, options ...testcontainers.ContainerCustomizer) (*Server, error) {
	image, err := serverImage(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the Docker engine for its images: %w", err)
	}
	url := func(host string, port network.Port) string {
		return rootDSN(net.JoinHostPort(host, port.Port()))
	}
	running, err := testcontainers.Run(ctx, image, append([]testcontainers.ContainerCustomizer{
		testcontainers.WithExposedPorts(mysqlPort),
		testcontainers.WithEnv(map[string]string{"MYSQL_ROOT_PASSWORD": rootPassword}),
		testcontainers.WithCmd(append([]string{"--skip-log-bin", "--max-connections=1000"}, flags...)...),
		testcontainers.WithWaitStrategy(wait.ForSQL(mysqlPort, "mysql", url).WithStartupTimeout(2 * time.Minute)),
	}, options...)...)
	if err != nil {
		return nil, fmt.Errorf("start MySQL from image %s (ORBIT_TEST_MYSQL_IMAGE names another, ORBIT_TEST_DSN a server that runs): %w", image, err)
	}
	endpoint, err := running.PortEndpoint(ctx, mysqlPort, "")
	if err != nil {
		return nil, fmt.Errorf("find the port of MySQL: %w", err)
	}
	return &Server{DSN: rootDSN(endpoint), container: running}, nil
}

// serverImage is the one that ORBIT_TEST_MYSQL_IMAGE names, else one that the engine has, else the official one from a registry.
func serverImage(ctx context.Context) (string, error) {
	if image := os.Getenv("ORBIT_TEST_MYSQL_IMAGE"); image != "" {
		return image, nil
	}
	engine, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return "", err
	}
	defer engine.Close()
	for _, image := range []string{officialImage, localImage} {
		if _, err := engine.ImageInspect(ctx, image); err == nil {
			return image, nil
		}
	}
	return officialImage, nil
}

// publishAt makes the server reachable at a port of the host, rather than at one that the engine chooses at each start.
func publishAt(port int) testcontainers.CustomizeRequestOption {
	return testcontainers.WithHostConfigModifier(func(config *container.HostConfig) {
		config.PortBindings = network.PortMap{network.MustParsePort(mysqlPort): {{HostPort: strconv.Itoa(port)}}}
	})
}

func rootDSN(endpoint string) string {
	return fmt.Sprintf("root:%s@tcp(%s)/", rootPassword, endpoint)
}

// databaseDSN is the DSN of a server that is known to parse, pointed at a database.
func databaseDSN(serverDSN, name string) string {
	config, err := mysql.ParseDSN(serverDSN)
	if err != nil {
		panic(err)
	}
	config.DBName = name
	return config.FormatDSN()
}

func createDatabase(ctx context.Context, server *sql.DB, name string) error {
	_, err := server.ExecContext(ctx, "CREATE DATABASE "+name+" DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_bin")
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
