CREATE TABLE `batches` (
	`id` text PRIMARY KEY NOT NULL,
	`owner` text NOT NULL,
	`created_by` text NOT NULL,
	`created_at` integer NOT NULL,
	`open` integer NOT NULL,
	`summary` text NOT NULL
);
--> statement-breakpoint
CREATE INDEX `batches_owner` ON `batches` (`owner`,`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `batches_open` ON `batches` (`open`) WHERE open = 1;--> statement-breakpoint
CREATE TABLE `files` (
	`id` text PRIMARY KEY NOT NULL,
	`owner` text NOT NULL,
	`created_by` text NOT NULL,
	`purpose` text NOT NULL,
	`filename` text NOT NULL,
	`bytes` integer NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer
);
--> statement-breakpoint
CREATE INDEX `files_owner` ON `files` (`owner`,`created_at`,`id`);--> statement-breakpoint
CREATE INDEX `files_expires` ON `files` (`expires_at`);