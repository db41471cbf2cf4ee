ALTER TABLE `usage_totals` ADD `audio_ms` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `usage_totals` ADD `images` integer DEFAULT 0 NOT NULL;