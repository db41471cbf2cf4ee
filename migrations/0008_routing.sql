CREATE TABLE `model_weights` (
	`model` text PRIMARY KEY NOT NULL,
	`weights` text NOT NULL,
	`updated_at` integer NOT NULL
);
--> statement-breakpoint
ALTER TABLE `api_keys` ADD `routing` text;--> statement-breakpoint
ALTER TABLE `model_settings` ADD `class` text DEFAULT 'standard' NOT NULL;--> statement-breakpoint
ALTER TABLE `model_settings` ADD `policy` text;--> statement-breakpoint
ALTER TABLE `model_settings` ADD `aliases` text;--> statement-breakpoint
ALTER TABLE `model_settings` ADD `fallbacks` text;--> statement-breakpoint
ALTER TABLE `model_settings` ADD `max_retries` integer;--> statement-breakpoint
ALTER TABLE `projects` ADD `routing` text;