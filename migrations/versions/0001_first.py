"""documents, jobs, deliveries and publications"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import gatekeeper.store.types


revision = '0001'
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('deliveries',
    sa.Column('hook_id', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('guid', sa.String(length=100), nullable=False),
    sa.Column('event', sa.String(length=100), nullable=False),
    sa.Column('action', sa.String(length=100), nullable=True),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.Column('times', sa.Integer(), nullable=False),
    sa.Column('received_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.Column('done_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=True),
    sa.Column('note', sa.Text(), nullable=True),
    sa.PrimaryKeyConstraint('hook_id', 'guid', name=op.f('pk_deliveries'))
    )
    with op.batch_alter_table('deliveries', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_deliveries_received_at'), ['received_at'], unique=False)

    op.create_table('documents',
    sa.Column('kind', sa.String(length=40), nullable=False),
    sa.Column('digest', sa.String(length=71), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('stored_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('kind', 'digest', name=op.f('pk_documents'))
    )
    op.create_table('evidence',
    sa.Column('digest', sa.String(length=71), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('kind', sa.String(length=40), nullable=False),
    sa.Column('origin', sa.String(length=40), nullable=False),
    sa.Column('request', sa.String(length=71), nullable=True),
    sa.Column('tree', sa.String(length=64), nullable=True),
    sa.Column('repository_id', sa.BigInteger(), nullable=True),
    sa.Column('number', sa.Integer(), nullable=True),
    sa.Column('head_sha', sa.String(length=64), nullable=True),
    sa.Column('recorded_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('digest', name=op.f('pk_evidence'))
    )
    with op.batch_alter_table('evidence', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_evidence_kind_recorded_at'), ['kind', 'recorded_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_evidence_repository_id_number_head_sha'), ['repository_id', 'number', 'head_sha'], unique=False)
        batch_op.create_index(batch_op.f('ix_evidence_request'), ['request'], unique=False)
        batch_op.create_index(batch_op.f('ix_evidence_tree'), ['tree'], unique=False)

    op.create_table('jobs',
    sa.Column('id', sa.Uuid(), nullable=False),
    sa.Column('kind', sa.String(length=40), nullable=False),
    sa.Column('key', sa.String(length=200), nullable=False),
    sa.Column('state', sa.String(length=40), nullable=False),
    sa.Column('priority', sa.Integer(), nullable=False),
    sa.Column('asked', sa.Integer(), nullable=False),
    sa.Column('attempt', sa.Integer(), nullable=False),
    sa.Column('fence', sa.BigInteger(), nullable=False),
    sa.Column('payload', sa.JSON(), nullable=False),
    sa.Column('delivery_id', sa.String(length=100), nullable=True),
    sa.Column('run_after', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.Column('lease_until', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=True),
    sa.Column('error', sa.Text(), nullable=True),
    sa.Column('enqueued_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.Column('started_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=True),
    sa.Column('finished_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=True),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_jobs')),
    sa.UniqueConstraint('kind', 'key', name=op.f('uq_jobs_kind'))
    )
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_jobs_state_kind'), ['state', 'kind'], unique=False)
        batch_op.create_index(batch_op.f('ix_jobs_state_lease_until'), ['state', 'lease_until'], unique=False)
        batch_op.create_index(batch_op.f('ix_jobs_state_run_after'), ['state', 'run_after'], unique=False)

    op.create_table('repositories',
    sa.Column('id', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('full_name', sa.String(length=200), nullable=False),
    sa.Column('installation_id', sa.BigInteger(), nullable=True),
    sa.Column('default_branch', sa.String(length=255), nullable=True),
    sa.Column('seen_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('id', name=op.f('pk_repositories'))
    )
    with op.batch_alter_table('repositories', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_repositories_full_name'), ['full_name'], unique=False)

    op.create_table('snapshots',
    sa.Column('digest', sa.String(length=71), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('repository_id', sa.BigInteger(), nullable=False),
    sa.Column('number', sa.Integer(), nullable=False),
    sa.Column('head_sha', sa.String(length=64), nullable=False),
    sa.Column('base_sha', sa.String(length=64), nullable=False),
    sa.Column('merge_tree', sa.String(length=64), nullable=True),
    sa.Column('stored_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.PrimaryKeyConstraint('digest', name=op.f('pk_snapshots'))
    )
    with op.batch_alter_table('snapshots', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_snapshots_repository_id_head_sha'), ['repository_id', 'head_sha'], unique=False)
        batch_op.create_index(batch_op.f('ix_snapshots_repository_id_number_stored_at'), ['repository_id', 'number', 'stored_at'], unique=False)

    op.create_table('snapshot_trees',
    sa.Column('tree', sa.String(length=64), nullable=False),
    sa.Column('snapshot', sa.String(length=71), nullable=False),
    sa.ForeignKeyConstraint(['snapshot'], ['snapshots.digest'], name=op.f('fk_snapshot_trees_snapshot')),
    sa.PrimaryKeyConstraint('tree', 'snapshot', name=op.f('pk_snapshot_trees'))
    )
    op.create_table('verdicts',
    sa.Column('digest', sa.String(length=71), nullable=False),
    sa.Column('body', sa.Text(), nullable=False),
    sa.Column('snapshot', sa.String(length=71), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    sa.Column('supersedes', sa.String(length=71), nullable=True),
    sa.Column('policy_set', sa.String(length=71), nullable=False),
    sa.Column('outcome', sa.String(length=40), nullable=False),
    sa.Column('isolation', sa.String(length=40), nullable=True),
    sa.Column('scope', sa.String(length=40), nullable=True),
    sa.Column('benchmarks', sa.String(length=40), nullable=True),
    sa.Column('contributor_log', sa.String(length=40), nullable=True),
    sa.Column('decided_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['snapshot'], ['snapshots.digest'], name=op.f('fk_verdicts_snapshot')),
    sa.ForeignKeyConstraint(['supersedes'], ['verdicts.digest'], name=op.f('fk_verdicts_supersedes')),
    sa.PrimaryKeyConstraint('digest', name=op.f('pk_verdicts')),
    sa.UniqueConstraint('snapshot', 'position', name=op.f('uq_verdicts_snapshot'))
    )
    with op.batch_alter_table('verdicts', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_verdicts_decided_at'), ['decided_at'], unique=False)

    op.create_table('published',
    sa.Column('publisher', sa.String(length=40), nullable=False),
    sa.Column('repository_id', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('number', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('snapshot', sa.String(length=71), nullable=False),
    sa.Column('verdict', sa.String(length=71), nullable=False),
    sa.Column('head_sha', sa.String(length=64), nullable=False),
    sa.Column('external', sa.JSON(), nullable=False),
    sa.Column('at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['snapshot'], ['snapshots.digest'], name=op.f('fk_published_snapshot')),
    sa.ForeignKeyConstraint(['verdict'], ['verdicts.digest'], name=op.f('fk_published_verdict')),
    sa.PrimaryKeyConstraint('publisher', 'repository_id', 'number', name=op.f('pk_published'))
    )
    op.create_table('pulls',
    sa.Column('repository_id', sa.BigInteger(), autoincrement=False, nullable=False),
    sa.Column('number', sa.Integer(), autoincrement=False, nullable=False),
    sa.Column('title', sa.String(length=1024), nullable=False),
    sa.Column('author_id', sa.BigInteger(), nullable=False),
    sa.Column('author_login', sa.String(length=100), nullable=False),
    sa.Column('base_ref', sa.String(length=255), nullable=False),
    sa.Column('draft', sa.Boolean(), nullable=False),
    sa.Column('open', sa.Boolean(), nullable=False),
    sa.Column('head_sha', sa.String(length=64), nullable=False),
    sa.Column('snapshot', sa.String(length=71), nullable=True),
    sa.Column('verdict', sa.String(length=71), nullable=True),
    sa.Column('outcome', sa.String(length=40), nullable=True),
    sa.Column('updated_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=False),
    sa.ForeignKeyConstraint(['repository_id'], ['repositories.id'], name=op.f('fk_pulls_repository_id')),
    sa.ForeignKeyConstraint(['snapshot'], ['snapshots.digest'], name=op.f('fk_pulls_snapshot')),
    sa.ForeignKeyConstraint(['verdict'], ['verdicts.digest'], name=op.f('fk_pulls_verdict')),
    sa.PrimaryKeyConstraint('repository_id', 'number', name=op.f('pk_pulls'))
    )
    with op.batch_alter_table('pulls', schema=None) as batch_op:
        batch_op.create_index(batch_op.f('ix_pulls_open_updated_at'), ['open', 'updated_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_pulls_outcome_updated_at'), ['outcome', 'updated_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_pulls_repository_id_updated_at'), ['repository_id', 'updated_at'], unique=False)
        batch_op.create_index(batch_op.f('ix_pulls_snapshot'), ['snapshot'], unique=False)
        batch_op.create_index(batch_op.f('ix_pulls_updated_at_repository_id_number'), ['updated_at', 'repository_id', 'number'], unique=False)



def downgrade() -> None:
    with op.batch_alter_table('pulls', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_pulls_updated_at_repository_id_number'))
        batch_op.drop_index(batch_op.f('ix_pulls_snapshot'))
        batch_op.drop_index(batch_op.f('ix_pulls_repository_id_updated_at'))
        batch_op.drop_index(batch_op.f('ix_pulls_outcome_updated_at'))
        batch_op.drop_index(batch_op.f('ix_pulls_open_updated_at'))

    op.drop_table('pulls')
    op.drop_table('published')
    with op.batch_alter_table('verdicts', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_verdicts_decided_at'))

    op.drop_table('verdicts')
    op.drop_table('snapshot_trees')
    with op.batch_alter_table('snapshots', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_snapshots_repository_id_number_stored_at'))
        batch_op.drop_index(batch_op.f('ix_snapshots_repository_id_head_sha'))

    op.drop_table('snapshots')
    with op.batch_alter_table('repositories', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_repositories_full_name'))

    op.drop_table('repositories')
    with op.batch_alter_table('jobs', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_jobs_state_run_after'))
        batch_op.drop_index(batch_op.f('ix_jobs_state_lease_until'))
        batch_op.drop_index(batch_op.f('ix_jobs_state_kind'))

    op.drop_table('jobs')
    with op.batch_alter_table('evidence', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_evidence_tree'))
        batch_op.drop_index(batch_op.f('ix_evidence_request'))
        batch_op.drop_index(batch_op.f('ix_evidence_repository_id_number_head_sha'))
        batch_op.drop_index(batch_op.f('ix_evidence_kind_recorded_at'))

    op.drop_table('evidence')
    op.drop_table('documents')
    with op.batch_alter_table('deliveries', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_deliveries_received_at'))

    op.drop_table('deliveries')
