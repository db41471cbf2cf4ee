-- Rows lie in the order of their key: a span of days is read as it lies, not row by row from all over the table.
CREATE TABLE `usage_totals_by_key` (
	`day` text NOT NULL,
	`project` text NOT NULL,
	`user` text NOT NULL,
	`key` text NOT NULL,
	`model` text NOT NULL,
	`provider` text NOT NULL,
	`requests` integer NOT NULL,
	`failed` integer NOT NULL,
	`aborted` integer NOT NULL,
	`estimated` integer NOT NULL,
	`prompt_tokens` integer NOT NULL,
	`completion_tokens` integer NOT NULL,
	`cached_tokens` integer NOT NULL,
	`reasoning_tokens` integer NOT NULL,
	`first_token_ms` integer NOT NULL,
	`total_ms` integer NOT NULL,
	PRIMARY KEY(`day`, `project`, `user`, `key`, `model`, `provider`)
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `usage_totals_by_key` (`day`, `project`, `user`, `key`, `model`, `provider`, `requests`, `failed`, `aborted`, `estimated`, `prompt_tokens`, `completion_tokens`, `cached_tokens`, `reasoning_tokens`, `first_token_ms`, `total_ms`) SELECT `day`, `project`, `user`, `key`, `model`, `provider`, `requests`, `failed`, `aborted`, `estimated`, `prompt_tokens`, `completion_tokens`, `cached_tokens`, `reasoning_tokens`, `first_token_ms`, `total_ms` FROM `usage_totals`;
--> statement-breakpoint
DROP TABLE `usage_totals`;
--> statement-breakpoint
ALTER TABLE `usage_totals_by_key` RENAME TO `usage_totals`;
--> statement-breakpoint
CREATE INDEX `usage_totals_provider` ON `usage_totals` (`provider`,`day`);
--> statement-breakpoint
CREATE INDEX `usage_totals_user` ON `usage_totals` (`user`,`day`);
