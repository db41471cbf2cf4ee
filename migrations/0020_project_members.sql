CREATE TABLE `access_requests` (
	`id` text PRIMARY KEY NOT NULL,
	`user_id` text NOT NULL,
	`project_id` text,
	`model` text,
	`reason` text NOT NULL,
	`status` text NOT NULL,
	`created_at` integer NOT NULL,
	`decided_at` integer
);
--> statement-breakpoint
CREATE INDEX `access_requests_created` ON `access_requests` (`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `access_requests_user` ON `access_requests` (`user_id`,`created_at`);--> statement-breakpoint
CREATE TABLE `project_members` (
	`id` text PRIMARY KEY NOT NULL,
	`project_id` text NOT NULL,
	`user_id` text NOT NULL,
	`lead` integer DEFAULT false NOT NULL,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `project_members_project` ON `project_members` (`project_id`,`created_at`);--> statement-breakpoint
CREATE INDEX `project_members_user` ON `project_members` (`user_id`);