import { defineConfig } from 'drizzle-kit';

export default defineConfig({ dialect: 'sqlite', schema: './gateway/accounts/schema.ts', out: './migrations' });
