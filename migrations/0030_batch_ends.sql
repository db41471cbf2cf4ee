CREATE INDEX `batches_ended` ON `batches` (CAST(CASE summary ->> 'status'
  WHEN 'completed' THEN summary ->> 'completed_at' WHEN 'failed' THEN summary ->> 'failed_at'
  WHEN 'expired' THEN summary ->> 'expired_at' WHEN 'cancelled' THEN summary ->> 'cancelled_at' END AS NUMERIC));