import { useQueryClient } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { type BatchFile, contentPath, deleteFile, readFiles } from '../../api/batches.ts';
import { useResources } from '../../api/resources.ts';
import { bytes, dateTimeOf } from '../../parts/format.ts';
import { ResourceList, RowMenu } from '../../parts/resource-list.tsx';
import { t } from '../../texts/index.ts';
import { Confirm } from '../../ui/dialog.tsx';
import { Section } from '../../ui/page.tsx';
import { type Column, Nowrap } from '../../ui/table.tsx';

const texts = t.batches.files;

/** Requests, results and other files of the user's project. `use` begins a batch with a file. */
export function FileList({ use }: { use: (file: BatchFile) => void }) {
  const files = useResources('files', readFiles);
  const queries = useQueryClient();
  const [asked, setAsked] = useState<BatchFile>();
  const columns = useMemo(() => columnsOf(use, setAsked), [use]);
  return (
    <Section title={texts.title}>
      <ResourceList
        label={texts.title}
        of={files}
        columns={columns}
        none={texts.none}
        words={({ filename, id }) => `${filename} ${id}`}
        rowId={({ id }) => id}
      />
      {asked !== undefined && (
        <Confirm
          title={texts.deleteTitle(asked.filename)}
          action={texts.delete}
          act={() => deleteFile(asked.id).then(() => queries.invalidateQueries({ queryKey: ['files'] }))}
          close={() => setAsked(undefined)}
        >
          {texts.deleteFollows}
        </Confirm>
      )}
    </Section>
  );
}

function purposeWords(purpose: string): string {
  const { purposes } = texts;
  return Object.hasOwn(purposes, purpose) ? purposes[purpose as keyof typeof purposes] : purpose;
}

function columnsOf(use: (file: BatchFile) => void, remove: (file: BatchFile) => void): Column<BatchFile>[] {
  const { columns } = texts;
  return [
    {
      id: 'name',
      header: columns.name,
      value: ({ filename }) => filename,
      cell: ({ id, filename }) => (
        <a href={contentPath(id)} download={filename} className="text-accent hover:underline">
          {filename}
        </a>
      ),
    },
    {
      id: 'purpose',
      header: columns.purpose,
      value: ({ purpose }) => purpose,
      cell: ({ purpose }) => purposeWords(purpose),
    },
    { id: 'size', header: columns.size, value: (file) => file.bytes, cell: (file) => bytes(file.bytes), numeric: true },
    {
      id: 'made',
      header: columns.made,
      value: ({ created_at }) => created_at,
      cell: ({ created_at }) => <Nowrap>{dateTimeOf(created_at)}</Nowrap>,
    },
    {
      id: 'expires',
      header: columns.expires,
      value: ({ expires_at }) => expires_at ?? Number.MAX_SAFE_INTEGER,
      cell: ({ expires_at }) => <Nowrap>{expires_at == null ? texts.never : dateTimeOf(expires_at)}</Nowrap>,
    },
    {
      id: 'actions',
      header: t.admin.columns.actions,
      cell: (file) => (
        <RowMenu
          name={file.filename}
          actions={[
            file.purpose === 'batch' && { label: texts.use, act: () => use(file) },
            { label: texts.delete, act: () => remove(file), danger: true },
          ]}
        />
      ),
    },
  ];
}
