import { applyD1Migrations, reset } from 'cloudflare:test';
import { env } from 'cloudflare:workers';

// All files share one runtime: without it a file would see the rows and objects of those before it.
await reset();
await applyD1Migrations(env.DB, env.TEST_MIGRATIONS);
