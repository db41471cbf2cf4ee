CREATE TABLE `provider_rights` (
	`id` text PRIMARY KEY NOT NULL,
	`user_id` text NOT NULL,
	`provider` text NOT NULL,
	`cluster` text NOT NULL,
	`max_nodes` integer NOT NULL,
	`granted_by` text NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`revoked_at` integer
);
--> statement-breakpoint
CREATE INDEX `provider_rights_created` ON `provider_rights` (`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `provider_rights_user` ON `provider_rights` (`user_id`,`created_at`);--> statement-breakpoint
ALTER TABLE `access_requests` ADD `provider` text;--> statement-breakpoint
ALTER TABLE `access_requests` ADD `cluster` text;--> statement-breakpoint
ALTER TABLE `access_requests` ADD `max_nodes` integer;--> statement-breakpoint
ALTER TABLE `access_requests` ADD `expires_at` integer;--> statement-breakpoint
ALTER TABLE `join_tokens` ADD `right_id` text;--> statement-breakpoint
CREATE INDEX `join_tokens_right` ON `join_tokens` (`right_id`);