ALTER TABLE `usage_totals` ADD `first_tokens` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `usage_totals` ADD `engine_first_token_ms` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `usage_totals` ADD `queue_ms` integer DEFAULT 0 NOT NULL;