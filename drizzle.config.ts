import { defineConfig } from 'drizzle-kit';

export default defineConfig({
  dialect: 'sqlite',
  schema: [
    './gateway/accounts/account-tables.ts',
    './gateway/accounts/model-tables.ts',
    './gateway/files/file-tables.ts',
    './gateway/usage/usage-tables.ts',
  ],
  out: './migrations',
});
