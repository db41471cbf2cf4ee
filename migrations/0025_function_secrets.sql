CREATE TABLE `function_secrets` (
	`owner` text NOT NULL,
	`name` text NOT NULL,
	`sealed` text NOT NULL,
	`created_by` text NOT NULL,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`owner`, `name`)
);
