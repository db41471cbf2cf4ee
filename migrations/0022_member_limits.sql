CREATE TABLE `member_limits` (
	`id` text PRIMARY KEY NOT NULL,
	`project_id` text NOT NULL,
	`user_id` text NOT NULL,
	`limits` text NOT NULL,
	`updated_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `member_limits_project` ON `member_limits` (`project_id`);--> statement-breakpoint
CREATE INDEX `member_limits_user` ON `member_limits` (`user_id`);