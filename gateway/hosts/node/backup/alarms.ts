/** Alarms after a restore. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Alarms } from '../alarms.ts';
import { objectName } from '../object-file.ts';
import { Database } from '../sqlite.ts';

/**
 * Gives every object without an alarm one that fires immediately. Alarms are in a separate file: an alarm that fired
 * during the backup may be missing in the copy of that file while its work is missing in the copy of its object's file.
 * Objects tolerate extra alarms. `objects`: a directory that no gateway uses.
 */
export function ringAll(objects: string): void {
  if (!existsSync(objects)) return;
  const alarms = new Alarms(new Database(join(objects, 'alarms.sqlite')), async () => {});
  const now = Date.now();
  try {
    for (const entry of readdirSync(objects, { withFileTypes: true })) {
      if (!entry.isDirectory()) continue;
      const names = readdirSync(join(objects, entry.name)).map(objectName);
      for (const name of names) {
        if (name === undefined) continue;
        const alarm = alarms.of(entry.name, name);
        if (alarm.get() === null) alarm.set(now);
      }
    }
  } finally {
    alarms.close();
  }
}
