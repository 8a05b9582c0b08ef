// Lists of what is revoked: only the CA makes them, any node hands them on.
import { randomUUID } from 'node:crypto'
import path from 'node:path'
import t from 'tap'
import { ClusterAuthority } from '#lib/cluster/trust/authority.js'
import { Revocations } from '#lib/cluster/trust/revocations.js'
import { openRevocations, RevocationNotes } from '#lib/cluster/trust/signed-revocations.js'

t.test('lists are handed on, and not made up', async t => {
  const folder = t.testdir({})
  const authority = await ClusterAuthority.create('lab', path.join(folder, 'one'))
  const other = await ClusterAuthority.create('lab', path.join(folder, 'other'))
  const { certificate } = authority
  const notes = async (name: string) => {
    const revocations = await Revocations.open(path.join(folder, name))
    return { revocations, notes: new RevocationNotes(revocations, certificate, undefined) }
  }
  const [second, third] = [await notes('second'), await notes('third')]
  t.equal(second.notes.current, null)
  await second.notes.take(null)

  const [early, late] = [randomUUID(), randomUUID()]
  const first = authority.signRevocations({ serials: [], nodes: [early], tokens: {} })
  await second.notes.take(first)
  await third.notes.take(second.notes.current)
  t.ok(third.revocations.isNodeRevoked(early))
  const next = authority.signRevocations({ serials: ['1f'], nodes: [early, late], tokens: {} })
  await third.notes.take(next)
  await third.notes.take(first)
  t.strictSame(third.notes.current, next, 'the latest is handed on')
  t.ok(third.revocations.isNodeRevoked(late))

  const jti = randomUUID()
  const signed = (ends: number, more: readonly string[] = []) =>
    authority.signRevocations({ serials: ['1f', ...more], nodes: [early, late], tokens: { [jti]: ends } })
  const withToken = signed(Date.now() / 1000 + 600)
  await third.notes.take(withToken)
  await third.notes.take(next)
  t.strictSame(third.notes.current, withToken, 'a list without a token that was revoked is an older one')
  const ended = signed(1, ['2f'])
  await third.notes.take(ended)
  const last = authority.signRevocations({ serials: ['1f', '2f'], nodes: [early, late], tokens: {} })
  await third.notes.take(last)
  t.strictSame(third.notes.current, last, 'a token that has ended is left out')

  const wrong = [
    other.signRevocations({ serials: [], nodes: [late], tokens: {} }),
    { ...first, text: first.text.replace(early, late) },
    { ...first, signature: '' },
    { text: first.text },
    { nodes: [late] },
    'text',
  ]
  for (const list of wrong) {
    t.throws(() => openRevocations(certificate, list), { code: 'ERR_DENIED' })
    await t.rejects(second.notes.take(list), { code: 'ERR_DENIED' })
  }
  t.notOk(second.revocations.isNodeRevoked(late))
  const malformed = authority.signRevocations({ serials: ['no hex'], nodes: [], tokens: {} })
  await t.rejects(second.notes.take(malformed), { code: 'ERR_FORMAT' })
})
