import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { gatewayUrl } from '../../api/base-path.ts';
import { addShare, deleteShare, listShares } from '../../api/shared-conversations.ts';
import { bytes, dateTime } from '../../parts/format.ts';
import { t } from '../../texts/index.ts';
import { Button } from '../../ui/button.tsx';
import { Copy } from '../../ui/copy.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Failure } from '../../ui/feedback.tsx';
import { Field, Input, Select } from '../../ui/field.tsx';
import { useAction } from '../../ui/use-action.ts';
import type { Conversation } from '../conversation.ts';
import { seal } from '../keep/box-cipher.ts';
import { newLinkKey, newShareId } from './link-key.ts';
import { sharedText } from './shared-conversation.ts';

const texts = t.chat.share;
const DAYS = [7, 30, 90, 365] as const;
const QUERY = ['shares'];

interface ShareDialogProps {
  read: () => Promise<Conversation | undefined>;
  close: () => void;
}

/** Makes a link to a conversation as it is now, and lists the links of the person. */
export function ShareDialog({ read, close }: ShareDialogProps) {
  const queries = useQueryClient();
  const [days, setDays] = useState('30');
  const [link, setLink] = useState<string>();
  const { act, error, busy } = useAction<string>(setLink);
  const make = async () => {
    const conversation = await read();
    if (conversation === undefined) throw new Error(t.chat.list.gone);
    const [id, { key, text }] = [newShareId(), await newLinkKey()];
    const { owner } = await addShare(id, await seal(key, id, sharedText(conversation)), Number(days));
    await queries.invalidateQueries({ queryKey: QUERY });
    return `${gatewayUrl}/#/chat/shared/${owner}/${id}/${text}`;
  };
  return (
    <Dialog title={texts.title} close={close}>
      <div className="flex flex-col gap-4">
        <p>{texts.about}</p>
        {link === undefined ? (
          <>
            <Field label={texts.days}>
              {(id) => (
                <Select id={id} value={days} onChange={({ currentTarget }) => setDays(currentTarget.value)}>
                  {DAYS.map((n) => (
                    <option key={n} value={n}>
                      {texts.forDays(n)}
                    </option>
                  ))}
                </Select>
              )}
            </Field>
            <div className="flex justify-end">
              <Button kind="primary" disabled={busy} onClick={() => act(make())}>
                {texts.make}
              </Button>
            </div>
          </>
        ) : (
          <Field label={texts.link} hint={texts.linkHint}>
            {(id) => (
              <span className="flex items-center gap-2">
                <Input id={id} value={link} readOnly onFocus={({ currentTarget }) => currentTarget.select()} />
                <Copy text={link} />
              </span>
            )}
          </Field>
        )}
        {error !== undefined && <Failure error={error} />}
        <Links />
      </div>
    </Dialog>
  );
}

/** The person's links. Their titles are encrypted, so only their ends and sizes are known here. */
function Links() {
  const { data: shares = [], refetch } = useQuery({ queryKey: QUERY, queryFn: ({ signal }) => listShares(signal) });
  const { act, error, busy } = useAction(() => undefined);
  if (shares.length === 0) return null;
  const remove = async (id: string) => {
    await deleteShare(id);
    await refetch();
  };
  return (
    <section aria-label={texts.links} className="flex flex-col gap-2 border-line border-t pt-4">
      <p className="font-medium">{texts.links}</p>
      <ul className="flex flex-col gap-1">
        {shares.map(({ id, bytes: size, expires_at }) => (
          <li key={id} className="flex items-center justify-between gap-2 text-sm">
            <span>{texts.ends(dateTime(expires_at), bytes(size))}</span>
            <Button size="small" disabled={busy} onClick={() => act(remove(id))}>
              {t.chat.list.delete}
            </Button>
          </li>
        ))}
      </ul>
      {error !== undefined && <Failure error={error} />}
    </section>
  );
}
