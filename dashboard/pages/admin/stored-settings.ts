import { gateway } from '../../api/client.ts';
import type { Settings, SettingsChange } from '../../api/resources.ts';

export interface SettingsProps {
  settings: Settings;
  save: (change: SettingsChange) => Promise<void>;
}

/** Reads the current settings, because another window may have changed them. */
export const storedSettings = async () => (await gateway.GET('/admin/settings')).data;
