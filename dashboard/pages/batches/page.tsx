import { useState } from 'react';
import { useRoute } from 'wouter';
import { useMe } from '../../parts/session.tsx';
import { t } from '../../texts/index.ts';
import { Page } from '../../ui/page.tsx';
import { BatchPage } from './batch.tsx';
import { BatchList } from './batch-list.tsx';
import { DropFile } from './drop-file.tsx';
import { FileList } from './file-list.tsx';
import { FileQuota } from './file-quota.tsx';
import { NewBatchDialog, type NewBatchInput } from './new-batch-dialog.tsx';

/** `#/batches`, and `#/batches/ID` for a single batch. */
export default function BatchesPage() {
  const [isOne, at] = useRoute('/batches/:id');
  return isOne ? <BatchPage id={at.id} /> : <Batches />;
}

function Batches() {
  const me = useMe();
  const [input, setInput] = useState<NewBatchInput>();
  return (
    <Page title={t.pages.batches} about={t.batches.about}>
      <DropFile choose={(file) => setInput({ kind: 'local', file })} />
      <BatchList isOperator={me.role === 'operator'} />
      <FileList use={(file) => setInput({ kind: 'stored', file })} />
      <FileQuota />
      {input !== undefined && <NewBatchDialog input={input} close={() => setInput(undefined)} />}
    </Page>
  );
}
