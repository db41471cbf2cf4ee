/** Every word that the page says, in English. Another language is another object of this type. */
import { chat } from './chat.ts';
import { general } from './general.ts';
import { keys } from './keys.ts';
import { errorCodes, modelStates, models, usage } from './models.ts';
import { nodes } from './nodes.ts';
import { joinTokens, wizard } from './providers.ts';

export const en = { ...general, chat, keys, joinTokens, wizard, nodes, models, modelStates, usage, errorCodes };

export type Texts = typeof en;
