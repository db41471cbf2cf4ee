import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'postgresql',
  schema: './gateway/hosts/node/postgresql/postgres-tables.ts',
  out: './gateway/hosts/node/postgresql/migrations',
});
