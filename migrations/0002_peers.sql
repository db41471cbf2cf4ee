CREATE TABLE `peers` (
	`name` text PRIMARY KEY NOT NULL,
	`root` text NOT NULL,
	`url` text,
	`created_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `peers_root_unique` ON `peers` (`root`);