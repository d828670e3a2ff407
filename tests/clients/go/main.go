// Prints the rows that are inserted, as pglogrepl receives them.
//
//	replicate PORT SLOT PUBLICATION create|resume COUNT
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	port, slot, publication, mode := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	left, err := strconv.Atoi(os.Args[5])
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgconn.Connect(ctx, "host=127.0.0.1 port="+port+" user=postgres dbname=postgres replication=database")
	check(err)
	_, err = pglogrepl.IdentifySystem(ctx, conn)
	check(err)
	if mode == "create" {
		_, err = pglogrepl.CreateReplicationSlot(ctx, conn, slot, "pgoutput", pglogrepl.CreateReplicationSlotOptions{})
		check(err)
	}
	err = pglogrepl.StartReplication(ctx, conn, slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + publication + "'"},
	})
	check(err)
	for left > 0 {
		left -= receive(ctx, conn)
	}
	// What follows the stream: the connection takes commands again.
	_, err = pglogrepl.SendStandbyCopyDone(ctx, conn)
	check(err)
	_, err = pglogrepl.IdentifySystem(ctx, conn)
	check(err)
	check(conn.Close(ctx))
}

// How many rows were inserted by what came.
func receive(ctx context.Context, conn *pgconn.PgConn) int {
	raw, err := conn.ReceiveMessage(ctx)
	check(err)
	switch message := raw.(type) {
	case *pgproto3.ErrorResponse:
		log.Fatal(message.Message)
	case *pgproto3.CopyData:
		switch message.Data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			_, err := pglogrepl.ParsePrimaryKeepaliveMessage(message.Data[1:])
			check(err)
		case pglogrepl.XLogDataByteID:
			data, err := pglogrepl.ParseXLogData(message.Data[1:])
			check(err)
			return handle(ctx, conn, data)
		}
	}
	return 0
}

var pending int

func handle(ctx context.Context, conn *pgconn.PgConn, data pglogrepl.XLogData) int {
	logical, err := pglogrepl.Parse(data.WALData)
	check(err)
	switch logical := logical.(type) {
	case *pglogrepl.InsertMessage:
		var row []string
		for _, column := range logical.Tuple.Columns {
			row = append(row, string(column.Data))
		}
		fmt.Println(strings.Join(row, "\t"))
		pending++
	case *pglogrepl.CommitMessage:
		check(pglogrepl.SendStandbyStatusUpdate(ctx, conn, pglogrepl.StandbyStatusUpdate{
			WALWritePosition: logical.TransactionEndLSN,
		}))
		count := pending
		pending = 0
		return count
	}
	return 0
}
