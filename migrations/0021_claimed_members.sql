ALTER TABLE `project_members` ADD `claimed` integer DEFAULT false NOT NULL;--> statement-breakpoint
ALTER TABLE `users` ADD `groups` text;