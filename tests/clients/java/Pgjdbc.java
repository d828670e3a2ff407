import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.PGProperty;
import org.postgresql.replication.LogSequenceNumber;
import org.postgresql.replication.PGReplicationStream;
import org.postgresql.replication.ReplicationSlotInfo;

/**
 * Prints the rows that are inserted: first those that a slot's exported snapshot shows, read on another connection, then those
 * that its stream brings, in binary form.
 *
 * <p>Pgjdbc PORT SLOT PUBLICATION snapshot|resume COUNT; COUNT streamed rows are waited for
 */
public final class Pgjdbc {
  public static void main(String[] args) throws Exception {
    String url = "jdbc:postgresql://127.0.0.1:" + args[0] + "/postgres";
    try (Connection connection = DriverManager.getConnection(url, replication())) {
      PGConnection replicating = connection.unwrap(PGConnection.class);
      if (args[3].equals("snapshot")) {
        ReplicationSlotInfo slot =
            replicating.getReplicationAPI().createReplicationSlot().logical()
                .withSlotName(args[1]).withOutputPlugin("pgoutput").make();
        printSnapshot(url, slot.getSnapshotName());
      }
      PGReplicationStream stream =
          replicating.getReplicationAPI().replicationStream().logical()
              .withSlotName(args[1])
              .withSlotOption("proto_version", 1)
              .withSlotOption("publication_names", args[2])
              .withSlotOption("binary", true)
              .withSlotOption("messages", true)
              .withStatusInterval(1, TimeUnit.SECONDS)
              .start();
      follow(stream, Integer.parseInt(args[4]));
      stream.close();
      // What follows the stream: the connection takes statements again.
      try (Statement statement = connection.createStatement();
          ResultSet result = statement.executeQuery("IDENTIFY_SYSTEM")) {
        result.next();
      }
    }
  }

  private static Properties replication() {
    Properties properties = new Properties();
    PGProperty.USER.set(properties, "postgres");
    PGProperty.ASSUME_MIN_SERVER_VERSION.set(properties, "9.4");
    PGProperty.REPLICATION.set(properties, "database");
    PGProperty.PREFER_QUERY_MODE.set(properties, "simple");
    return properties;
  }

  private static void printSnapshot(String url, String snapshot) throws SQLException {
    try (Connection connection = DriverManager.getConnection(url, "postgres", "")) {
      connection.setAutoCommit(false);
      connection.setTransactionIsolation(Connection.TRANSACTION_REPEATABLE_READ);
      try (Statement statement = connection.createStatement()) {
        statement.execute("SET TRANSACTION SNAPSHOT '" + snapshot + "'");
        try (ResultSet rows =
            statement.executeQuery("SELECT id, coalesce(v, ''), at FROM t ORDER BY id")) {
          while (rows.next()) {
            System.out.println(rows.getInt(1) + "\t" + rows.getString(2) + "\t" + rows.getString(3));
          }
        }
      }
      connection.commit();
    }
  }

  private static void follow(PGReplicationStream stream, int count) throws SQLException {
    int left = count;
    int inserted = 0;
    while (left > 0) {
      ByteBuffer message = stream.read();
      switch (message.get()) {
        case 'I' -> {
          message.position(message.position() + 5);
          System.out.println(row(message));
          inserted++;
        }
        case 'C' -> {
          message.position(message.position() + 9);
          LogSequenceNumber end = LogSequenceNumber.valueOf(message.getLong());
          stream.setAppliedLSN(end);
          stream.setFlushedLSN(end);
          left -= inserted;
          inserted = 0;
        }
        case 'M' -> {
          boolean transactional = message.get() == 1;
          message.getLong();
          System.out.println("message\t" + transactional + "\t" + prefix(message));
        }
        default -> { }
      }
    }
    stream.forceUpdateStatus();
  }

  /** The values of a tuple: a binary integer, then binary texts, which are texts. */
  private static String row(ByteBuffer tuple) {
    StringBuilder row = new StringBuilder();
    int columns = tuple.getShort();
    for (int at = 0; at < columns; at++) {
      row.append(at == 0 ? "" : "\t");
      byte kind = tuple.get();
      if (kind != 'b') {
        continue;
      }
      int length = tuple.getInt();
      if (at == 0) {
        row.append(tuple.getInt());
        continue;
      }
      byte[] value = new byte[length];
      tuple.get(value);
      row.append(new String(value, StandardCharsets.UTF_8));
    }
    return row.toString();
  }

  private static String prefix(ByteBuffer message) {
    StringBuilder prefix = new StringBuilder();
    for (byte letter = message.get(); letter != 0; letter = message.get()) {
      prefix.append((char) letter);
    }
    return prefix.toString();
  }
}
