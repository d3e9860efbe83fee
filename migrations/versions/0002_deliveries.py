"""deliveries name repository, pull request, sender and size; pull requests keep the time of their newest event"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

import gatekeeper.store.types


revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table('deliveries', schema=None) as batch_op:
        batch_op.add_column(sa.Column('size', sa.Integer(), server_default='0', nullable=False))
        batch_op.add_column(sa.Column('repository_id', sa.BigInteger(), nullable=True))
        batch_op.add_column(sa.Column('number', sa.Integer(), nullable=True))
        batch_op.add_column(sa.Column('sender_id', sa.BigInteger(), nullable=True))
        batch_op.create_index(
            batch_op.f('ix_deliveries_repository_id_received_at'), ['repository_id', 'received_at'], unique=False
        )
        batch_op.create_index(
            batch_op.f('ix_deliveries_sender_id_received_at'), ['sender_id', 'received_at'], unique=False
        )
    op.execute("UPDATE deliveries SET size = length(body)")

    with op.batch_alter_table('pulls', schema=None) as batch_op:
        batch_op.add_column(sa.Column('event_at', gatekeeper.store.types.UtcDateTime(timezone=True), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table('pulls', schema=None) as batch_op:
        batch_op.drop_column('event_at')

    with op.batch_alter_table('deliveries', schema=None) as batch_op:
        batch_op.drop_index(batch_op.f('ix_deliveries_sender_id_received_at'))
        batch_op.drop_index(batch_op.f('ix_deliveries_repository_id_received_at'))
        batch_op.drop_column('sender_id')
        batch_op.drop_column('number')
        batch_op.drop_column('repository_id')
        batch_op.drop_column('size')
