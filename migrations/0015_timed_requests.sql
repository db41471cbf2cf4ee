ALTER TABLE `usage_totals` ADD `timed` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
UPDATE `usage_totals` SET `timed` = `requests` WHERE `total_ms` > 0;