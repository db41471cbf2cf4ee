import { createContext, useContext } from 'react';

/** Models for voice that the open conversation may use. Empty if it is sealed: audio is not sealed. */
export interface Voice {
  hears?: string;
  speaks?: string;
  /** Trusted providers of the conversation. */
  trusted: string;
}

const NO_VOICE: Voice = { trusted: '' };
export const VoiceContext = createContext<Voice>(NO_VOICE);
export const useVoice = (): Voice => useContext(VoiceContext);
