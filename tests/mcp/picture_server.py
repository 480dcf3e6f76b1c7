"""An MCP server made with the SDK, over stdio, whose tools return pictures and PDFs."""

from base64 import b64encode

from mcp.server.mcpserver import MCPServer
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolAnnotations,
)

from tests.sample_files import PNG, make_pdf

server = MCPServer("camera", log_level="ERROR")


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def shoot() -> list[ContentBlock]:
    """Take a picture."""
    return [
        TextContent(type="text", text="One picture was taken."),
        ImageContent(type="image", data=b64encode(PNG).decode(), mime_type="image/png"),
        AudioContent(type="audio", data="UklGRg==", mime_type="audio/wav"),
    ]


@server.tool(annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
def manual() -> list[ContentBlock]:
    """Return the manual of the camera."""
    blob = b64encode(make_pdf("Press the button for 42 seconds.")).decode()
    contents = BlobResourceContents(uri="file:///docs/manual.pdf", blob=blob, mime_type="application/pdf")
    return [EmbeddedResource(type="resource", resource=contents)]


if __name__ == "__main__":
    server.run("stdio")
