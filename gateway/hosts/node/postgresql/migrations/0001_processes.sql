CREATE SEQUENCE "public"."gateway_process_number" INCREMENT BY 1 MINVALUE 1 MAXVALUE 9223372036854775807 START WITH 1 CACHE 1;--> statement-breakpoint
CREATE TABLE "object_alarms" (
	"object" text COLLATE "C" PRIMARY KEY NOT NULL,
	"slot" smallint NOT NULL,
	"at" bigint NOT NULL
);
--> statement-breakpoint
CREATE TABLE "object_images" (
	"object" text COLLATE "C" PRIMARY KEY NOT NULL,
	"seq" bigint NOT NULL,
	"image" "bytea" NOT NULL
);
--> statement-breakpoint
CREATE TABLE "object_log" (
	"object" text COLLATE "C" NOT NULL,
	"seq" bigint NOT NULL,
	"owner" text NOT NULL,
	"writes" "bytea" NOT NULL,
	CONSTRAINT "object_log_object_seq_pk" PRIMARY KEY("object","seq")
);
--> statement-breakpoint
CREATE TABLE "object_slots" (
	"slot" smallint PRIMARY KEY NOT NULL,
	"owner" text,
	"epoch" bigint DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE "gateway_processes" (
	"incarnation" text PRIMARY KEY NOT NULL,
	"process" bigint NOT NULL,
	"address" text NOT NULL,
	"url" text,
	"version" text NOT NULL,
	"beat" bigint DEFAULT 0 NOT NULL,
	"ended" text
);
--> statement-breakpoint
CREATE TABLE "gateway_secrets" (
	"name" text PRIMARY KEY NOT NULL,
	"value" text NOT NULL
);
--> statement-breakpoint
CREATE INDEX "object_alarms_slot" ON "object_alarms" USING btree ("slot");