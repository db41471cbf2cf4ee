CREATE TABLE "provider_rights" (
	"id" text COLLATE "C" PRIMARY KEY NOT NULL,
	"user_id" text COLLATE "C" NOT NULL,
	"provider" text COLLATE "C" NOT NULL,
	"cluster" text COLLATE "C" NOT NULL,
	"max_nodes" bigint NOT NULL,
	"granted_by" text COLLATE "C" NOT NULL,
	"created_at" bigint NOT NULL,
	"expires_at" bigint NOT NULL,
	"revoked_at" bigint
);
--> statement-breakpoint
ALTER TABLE "access_requests" ADD COLUMN "provider" text COLLATE "C";--> statement-breakpoint
ALTER TABLE "access_requests" ADD COLUMN "cluster" text COLLATE "C";--> statement-breakpoint
ALTER TABLE "access_requests" ADD COLUMN "max_nodes" bigint;--> statement-breakpoint
ALTER TABLE "access_requests" ADD COLUMN "expires_at" bigint;--> statement-breakpoint
ALTER TABLE "join_tokens" ADD COLUMN "right_id" text COLLATE "C";--> statement-breakpoint
CREATE INDEX "provider_rights_created" ON "provider_rights" USING btree ("created_at","id");--> statement-breakpoint
CREATE INDEX "provider_rights_user" ON "provider_rights" USING btree ("user_id","created_at");--> statement-breakpoint
CREATE INDEX "join_tokens_right" ON "join_tokens" USING btree ("right_id");