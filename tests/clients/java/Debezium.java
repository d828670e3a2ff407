import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Prints the rows that are inserted, as Debezium's engine hands them over: first those that its snapshot reads, then those
 * that come.
 *
 * <p>Debezium OFFSETS AUTOCREATE PORT SLOT PUBLICATION snapshot|resume COUNT; COUNT streamed rows are waited for. What
 * it was told before is in OFFSETS
 */
public final class Debezium {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final CountDownLatch ENOUGH = new CountDownLatch(1);
  private static int left;
  private static Throwable failure;

  public static void main(String[] args) throws Exception {
    Properties settings = new Properties();
    settings.setProperty("name", "decant");
    settings.setProperty("connector.class", "io.debezium.connector.postgresql.PostgresConnector");
    settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
    settings.setProperty("offset.storage.file.filename", args[0]);
    settings.setProperty("offset.flush.interval.ms", "0");
    settings.setProperty("publication.autocreate.mode", args[1]);
    settings.setProperty("database.hostname", "127.0.0.1");
    settings.setProperty("database.port", args[2]);
    settings.setProperty("database.user", "postgres");
    settings.setProperty("database.password", "");
    settings.setProperty("database.dbname", "postgres");
    settings.setProperty("slot.name", args[3]);
    settings.setProperty("publication.name", args[4]);
    settings.setProperty("plugin.name", "pgoutput");
    settings.setProperty("snapshot.mode", "initial");
    settings.setProperty("table.include.list", "public.t");
    settings.setProperty("topic.prefix", "decant");
    settings.setProperty("status.update.interval.ms", "200");
    settings.setProperty("poll.interval.ms", "50");
    settings.setProperty("schema.history.internal", "io.debezium.relational.history.MemorySchemaHistory");
    settings.setProperty("value.converter.schemas.enable", "false");
    left = Integer.parseInt(args[6]);

    DebeziumEngine<ChangeEvent<String, String>> engine =
        DebeziumEngine.create(Json.class)
            .using(settings)
            .using((success, message, error) -> {
              failure = success ? null : error != null ? error : new IllegalStateException(message);
              ENOUGH.countDown();
            })
            .notifying(Debezium::take)
            .build();
    ExecutorService executor = Executors.newSingleThreadExecutor();
    executor.execute(engine);
    ENOUGH.await();
    engine.close();
    executor.shutdown();
    if (failure != null) {
      failure.printStackTrace();
      System.exit(1);
    }
    System.exit(0);
  }

  /** What is printed is confirmed before the next batch comes, and nothing else is: so the next run neither loses nor repeats. */
  private static void take(
      List<ChangeEvent<String, String>> batch,
      DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer)
      throws InterruptedException {
    for (ChangeEvent<String, String> event : batch) {
      if (left <= 0) {
        break;
      }
      print(event);
      committer.markProcessed(event);
    }
    committer.markBatchFinished();
    if (left <= 0) {
      ENOUGH.countDown();
    }
  }

  private static void print(ChangeEvent<String, String> event) {
    try {
      JsonNode change = JSON.readTree(event.value());
      String operation = change.path("op").asText();
      if (!operation.equals("r") && !operation.equals("c")) {
        return;
      }
      JsonNode row = change.path("after");
      String value = row.path("v").isNull() ? "" : row.path("v").asText();
      System.out.println(row.path("id").asInt() + "\t" + value + "\t" + row.path("at").asText());
      left -= operation.equals("c") ? 1 : 0;
    } catch (java.io.IOException error) {
      throw new java.io.UncheckedIOException(error);
    }
  }
}
