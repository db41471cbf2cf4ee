CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`hash` text NOT NULL,
	`prefix` text NOT NULL,
	`name` text NOT NULL,
	`role` text NOT NULL,
	`created_at` integer NOT NULL,
	`revoked_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_hash_unique` ON `api_keys` (`hash`);--> statement-breakpoint
CREATE INDEX `api_keys_created` ON `api_keys` (`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `api_keys_revoked` ON `api_keys` (`revoked_at`) WHERE revoked_at IS NOT NULL;--> statement-breakpoint
CREATE TABLE `join_tokens` (
	`id` text PRIMARY KEY NOT NULL,
	`hash` text NOT NULL,
	`prefix` text NOT NULL,
	`name` text NOT NULL,
	`provider` text NOT NULL,
	`cluster` text,
	`created_at` integer NOT NULL,
	`revoked_at` integer
);
--> statement-breakpoint
CREATE UNIQUE INDEX `join_tokens_hash_unique` ON `join_tokens` (`hash`);--> statement-breakpoint
CREATE INDEX `join_tokens_created` ON `join_tokens` (`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `model_settings` (
	`model` text PRIMARY KEY NOT NULL,
	`first_byte_ms` integer,
	`stall_ms` integer,
	`updated_at` integer NOT NULL
);
