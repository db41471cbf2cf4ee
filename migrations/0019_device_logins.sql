CREATE TABLE `device_logins` (
	`hash` text PRIMARY KEY NOT NULL,
	`user_id` text NOT NULL,
	`project_id` text,
	`approved_by` text,
	`denied` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `device_logins_user` ON `device_logins` (`user_id`);--> statement-breakpoint
CREATE INDEX `device_logins_expires` ON `device_logins` (`expires_at`);--> statement-breakpoint
ALTER TABLE `api_keys` ADD `granted_by` text;