ALTER TABLE `api_keys` ADD `resume` integer DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE `projects` ADD `resume` integer DEFAULT false NOT NULL;