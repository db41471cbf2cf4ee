import { applyD1Migrations, reset } from 'cloudflare:test';
import { env } from 'cloudflare:workers';

// All files share one runtime: without a reset a file would see the rows and objects of the previous ones.
await reset();
await applyD1Migrations(env.DB, env.TEST_MIGRATIONS);
