CREATE TABLE "usage_records" (
	"name" text COLLATE "C" PRIMARY KEY NOT NULL,
	"n" bigint GENERATED ALWAYS AS IDENTITY (sequence name "usage_records_n_seq" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1),
	"hour" text COLLATE "C" NOT NULL,
	"at" bigint NOT NULL,
	"estimated" boolean NOT NULL,
	"traced" boolean NOT NULL,
	"session" text COLLATE "C" NOT NULL,
	"request" text COLLATE "C" NOT NULL,
	"user" text COLLATE "C" NOT NULL,
	"key" text COLLATE "C" NOT NULL,
	"model" text COLLATE "C" NOT NULL,
	"prompt" bigint NOT NULL,
	"completion" bigint NOT NULL,
	"times" bigint NOT NULL,
	"failed" boolean NOT NULL,
	"error" text,
	"kind" text,
	"total_ms" bigint,
	"row" text NOT NULL,
	"replaced" text,
	"buckets" text
);
--> statement-breakpoint
CREATE INDEX "usage_records_hour" ON "usage_records" USING btree ("hour","n");--> statement-breakpoint
CREATE INDEX "usage_records_request" ON "usage_records" USING btree ("request");