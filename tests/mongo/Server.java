import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.h2.H2Backend;

/** Speaks MongoDB's protocol on a free port, which it prints, until its input ends. */
class Server {
  public static void main(String[] arguments) throws Exception {
    MongoServer server = new MongoServer(H2Backend.inMemory());
    server.bind("127.0.0.1", 0);
    System.out.println(server.getLocalAddress().getPort());
    System.out.flush();
    while (System.in.read() >= 0) {}
    server.shutdownNow();
  }
}
