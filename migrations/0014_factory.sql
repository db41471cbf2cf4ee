CREATE TABLE `factory_tokens` (
	`id` text PRIMARY KEY NOT NULL,
	`hash` text NOT NULL,
	`prefix` text NOT NULL,
	`name` text NOT NULL,
	`provider` text NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer,
	`revoked_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `factory_tokens_hash_unique` ON `factory_tokens` (`hash`);--> statement-breakpoint
CREATE INDEX `factory_tokens_created` ON `factory_tokens` (`created_at`,`id`);--> statement-breakpoint
ALTER TABLE `api_keys` ADD `start_wait_ms` integer;--> statement-breakpoint
ALTER TABLE `model_settings` ADD `start_wait_ms` integer;--> statement-breakpoint
ALTER TABLE `projects` ADD `start_wait_ms` integer;