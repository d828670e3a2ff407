// Prints the rows that are inserted, as pg-logical-replication receives them.
//
//   node replicate.js PORT SLOT PUBLICATION create|resume COUNT
import pg from "pg";
import { LogicalReplicationService, PgoutputPlugin } from "pg-logical-replication";

const [port, slot, publication, mode, count] = process.argv.slice(2);
const server = { host: "127.0.0.1", port: Number(port), user: "postgres", database: "postgres" };

if (mode === "create") {
  // As its users do: with a function, on an ordinary connection.
  const client = new pg.Client(server);
  await client.connect();
  await client.query("SELECT * FROM pg_create_logical_replication_slot($1, 'pgoutput')", [slot]);
  await client.end();
}

let left = Number(count);
const service = new LogicalReplicationService(server, {
  acknowledge: { auto: false, timeoutSeconds: 0 },
});
service.on("data", async (lsn, message) => {
  if (message.tag === "insert") {
    const row = Object.values(message.new).map((value) => value ?? "");
    console.log(row.join("\t"));
    left -= 1;
  } else if (message.tag === "commit") {
    await service.acknowledge(lsn);
    if (left <= 0) {
      await service.stop();
      process.exit(0);
    }
  }
});
service.on("error", (error) => {
  console.error(error);
  process.exit(1);
});
const plugin = new PgoutputPlugin({ protoVersion: 1, publicationNames: [publication] });
await service.subscribe(plugin, slot);
