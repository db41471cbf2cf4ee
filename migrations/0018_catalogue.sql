CREATE TABLE `catalogue` (
	`model` text PRIMARY KEY NOT NULL,
	`owner_id` text,
	`access` text,
	`always_on` integer DEFAULT false NOT NULL,
	`deprecated_at` integer,
	`sunset_at` integer,
	`successor` text,
	`updated_at` integer NOT NULL
);
--> statement-breakpoint
ALTER TABLE `providers` ADD `models` text;