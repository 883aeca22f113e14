//! `logs`: prints a function's log, and follows it.

use faasw_client::LogPage;

use super::{
    args::Logs,
    exit::Exit,
    output::{self, print, print_json, say},
};

/// Prints the newest lines of a log, and with `-f` also further lines as they arrive.
pub async fn logs(args: Logs) -> Result<(), Exit> {
    let client = args.node.client()?;
    let mut page = client.logs(&args.name, args.lines).await?;
    let json = args.format.json;
    if !args.follow {
        return if json {
            print_json(&page.lines)
        } else {
            print(output::log_lines(&page.lines))
        };
    }
    loop {
        show(&page, json)?;
        page = client.logs_after(&args.name, page.next).await?;
    }
}

fn show(page: &LogPage, json: bool) -> Result<(), Exit> {
    if page.missed > 0 {
        say(format_args!(
            "… {} lines were skipped because they came too fast; the log file has them",
            page.missed
        ));
    }
    if json {
        return page.lines.iter().try_for_each(print_json);
    }
    print(output::log_lines(&page.lines))
}
