#!/usr/bin/env bash
# Makes the JSON Schemas beside this file from Slack's own npm types (MIT). Needs Node 20 and npm; the results are kept
# as data, so no test run needs either. Lengths are not in the types: the double adds them by hand.
# Usage: tests/doubles/slack_schemas/generate.sh
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init -y >/dev/null
npm install --no-audit --no-fund --silent @slack/types@3.2.0 @slack/web-api@8.2.0 ts-json-schema-generator@2.4.0
echo '{"compilerOptions":{"target":"es2022","module":"nodenext","moduleResolution":"nodenext","strict":true,"skipLibCheck":true}}' >tsconfig.json

make() { # name, module, type
  printf 'import type { %s } from "%s";\nexport type Root = %s;\n' "$3" "$2" "$3" >root.ts
  npx ts-json-schema-generator --path root.ts --tsconfig tsconfig.json --type Root --no-type-check --jsDoc none --minify -o "$here/$1.json"
}

requests=@slack/web-api/dist/types/request/index
while read -r name type; do make "$name" "$requests" "$type"; done <<'LIST'
chat.postMessage ChatPostMessageArguments
chat.update ChatUpdateArguments
chat.delete ChatDeleteArguments
chat.postEphemeral ChatPostEphemeralArguments
views.open ViewsOpenArguments
views.publish ViewsPublishArguments
files.getUploadURLExternal FilesGetUploadURLExternalArguments
files.completeUploadExternal FilesCompleteUploadExternalArguments
files.info FilesInfoArguments
reactions.add ReactionsAddArguments
reactions.remove ReactionsRemoveArguments
assistant.threads.setStatus AssistantThreadsSetStatusArguments
conversations.replies ConversationsRepliesArguments
conversations.history ConversationsHistoryArguments
users.info UsersInfoArguments
LIST
while read -r name type; do make "$name" @slack/types "$type"; done <<'LIST'
event.app_mention AppMentionEvent
event.message GenericMessageEvent
event.message.file_share FileShareMessageEvent
event.message.message_changed MessageChangedEvent
event.message.message_deleted MessageDeletedEvent
event.message.bot_message BotMessageEvent
event.app_home_opened AppHomeOpenedEvent
event.app_uninstalled AppUninstalledEvent
event.channel_archive ChannelArchiveEvent
LIST
