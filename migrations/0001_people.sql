CREATE TABLE `audit_log` (
	`id` integer PRIMARY KEY AUTOINCREMENT NOT NULL,
	`at` integer NOT NULL,
	`actor` text NOT NULL,
	`action` text NOT NULL,
	`object` text NOT NULL,
	`before` text,
	`after` text
);
--> statement-breakpoint
CREATE INDEX `audit_log_at` ON `audit_log` (`at`);--> statement-breakpoint
CREATE INDEX `audit_log_object` ON `audit_log` (`object`,`id`);--> statement-breakpoint
CREATE TABLE `idempotency` (
	`actor` text NOT NULL,
	`key` text NOT NULL,
	`request` text NOT NULL,
	`object` text NOT NULL,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`actor`, `key`)
);
--> statement-breakpoint
CREATE INDEX `idempotency_created` ON `idempotency` (`created_at`);--> statement-breakpoint
CREATE TABLE `logins` (
	`hash` text PRIMARY KEY NOT NULL,
	`issuer` text NOT NULL,
	`nonce` text NOT NULL,
	`verifier` text NOT NULL,
	`return_to` text NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `logins_expires` ON `logins` (`expires_at`);--> statement-breakpoint
CREATE TABLE `projects` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`models` text,
	`endpoints` text,
	`trusted_providers` text,
	`regions` text,
	`tiers` text,
	`limits` text,
	`no_track` integer DEFAULT false NOT NULL,
	`trace` integer DEFAULT false NOT NULL,
	`created_at` integer NOT NULL,
	`disabled_at` integer
);
--> statement-breakpoint
CREATE INDEX `projects_created` ON `projects` (`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `providers` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`trusted_by_default` integer DEFAULT true NOT NULL,
	`created_at` integer NOT NULL,
	`deleted_at` integer
);
--> statement-breakpoint
CREATE INDEX `providers_created` ON `providers` (`created_at`,`id`);--> statement-breakpoint
CREATE TABLE `sessions` (
	`hash` text PRIMARY KEY NOT NULL,
	`user_id` text NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `sessions_expires` ON `sessions` (`expires_at`);--> statement-breakpoint
CREATE INDEX `sessions_user` ON `sessions` (`user_id`);--> statement-breakpoint
CREATE TABLE `settings` (
	`name` text PRIMARY KEY NOT NULL,
	`value` text NOT NULL,
	`updated_at` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `usage_batches` (
	`shard` text NOT NULL,
	`batch` integer NOT NULL,
	PRIMARY KEY(`shard`, `batch`)
);
--> statement-breakpoint
CREATE TABLE `usage_totals` (
	`day` text NOT NULL,
	`project` text NOT NULL,
	`user` text NOT NULL,
	`key` text NOT NULL,
	`model` text NOT NULL,
	`provider` text NOT NULL,
	`requests` integer NOT NULL,
	`failed` integer NOT NULL,
	`aborted` integer NOT NULL,
	`estimated` integer NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`first_token_ms` integer NOT NULL,
	`total_ms` integer NOT NULL,
	PRIMARY KEY(`day`, `project`, `user`, `key`, `model`, `provider`)
);
--> statement-breakpoint
CREATE INDEX `usage_totals_provider` ON `usage_totals` (`provider`,`day`);--> statement-breakpoint
CREATE INDEX `usage_totals_user` ON `usage_totals` (`user`,`day`);--> statement-breakpoint
CREATE TABLE `users` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`email` text,
	`role` text NOT NULL,
	`provider` text,
	`project_id` text,
	`issuer` text,
	`subject` text,
	`created_at` integer NOT NULL,
	`last_login_at` integer,
	`disabled_at` integer
);
--> statement-breakpoint
CREATE INDEX `users_created` ON `users` (`created_at`,`id`);--> statement-breakpoint
CREATE UNIQUE INDEX `users_identity` ON `users` (`issuer`,`subject`);--> statement-breakpoint
ALTER TABLE `api_keys` ADD `provider` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `user_id` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `project_id` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `scopes` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `models` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `endpoints` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `trusted_providers` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `regions` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `tiers` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `limits` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `no_track` integer DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `rotated_from` text;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `expires_at` integer;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `last_used_at` integer;--> statement-breakpoint
CREATE INDEX `api_keys_user` ON `api_keys` (`user_id`,`created_at`);--> statement-breakpoint
CREATE INDEX `api_keys_project` ON `api_keys` (`project_id`,`created_at`);--> statement-breakpoint
ALTER TABLE `join_tokens` ADD `max_nodes` integer;--> statement-breakpoint
ALTER TABLE `join_tokens` ADD `nodes` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `join_tokens` ADD `expires_at` integer;--> statement-breakpoint
CREATE INDEX `join_tokens_provider` ON `join_tokens` (`provider`,`created_at`);--> statement-breakpoint
INSERT OR IGNORE INTO `providers` (`id`, `name`, `created_at`) SELECT `provider`, `provider`, min(`created_at`) FROM `join_tokens` GROUP BY `provider`;
