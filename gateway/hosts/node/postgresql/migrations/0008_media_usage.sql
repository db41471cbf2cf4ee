ALTER TABLE "usage_totals" ADD COLUMN "audio_ms" bigint DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE "usage_totals" ADD COLUMN "images" bigint DEFAULT 0 NOT NULL;