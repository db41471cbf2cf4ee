CREATE TABLE `model_cards` (
	`model` text PRIMARY KEY NOT NULL,
	`description` text NOT NULL,
	`license` text NOT NULL,
	`size` text NOT NULL,
	`context_length` integer,
	`input` text NOT NULL,
	`output` text NOT NULL,
	`tools` integer,
	`reasoning` integer,
	`url` text,
	`updated_at` integer NOT NULL
);
